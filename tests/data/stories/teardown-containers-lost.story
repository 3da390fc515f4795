# What containers do at will was lost: the runtime's stop cannot have been among that.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
8s    lose 5 of containers
9s    kill pause of a by kubelet
10s   stop a
11s   remove a
9m    end
expect confirmed teardown_out_of_order/pause_killed kubelet web-0 a since 9s
