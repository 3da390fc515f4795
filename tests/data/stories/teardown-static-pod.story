# A static pod is killed by somebody.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of etcd-node1 on-host
2s    container etcd in a starts
9s    kill pause of a by stranger
10s   stop a
11s   remove a
9m    end
expect confirmed teardown_out_of_order/pause_killed chaos etcd-node1 a
