# Records were lost, but a minute later the sandbox is there as it was: no stop was among them.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
8s    lose 5
69s   kill pause of a by kubelet
70s   stop a
71s   remove a
9m    end
expect blind_spot
expect confirmed teardown_out_of_order/pause_killed kubelet web-0 a since 69s
