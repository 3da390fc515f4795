# The same with host-local, which frees by container id.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-1 on podnet 10.99.0.2
2s    container main in a starts
3s    container main in a exits 0
4s    stop a
5s    sandbox b of job-1 on podnet 10.99.0.3
7s    kill pause of b by kubelet
7s    netns of b lost
8s    pod job-1 goes
9s    stop b
10s   remove a
10s   remove b
9m    end
expect confirmed duplicate_sandbox/after_completion job-1 a b since 5s
expect confirmed teardown_out_of_order/pause_killed kubelet job-1 b since 7s
expect incident duplicate_sandbox .teardown_out_of_order
