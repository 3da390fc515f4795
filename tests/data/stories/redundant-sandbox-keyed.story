# A Job's pod is done, the kubelet builds a second sandbox for it and then destroys the pod's cgroup; the plugin finds
# its address through the namespace, which is gone by the time of DEL.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-1 on keynet 10.99.0.2
2s    container main in a starts
3s    container main in a exits 0
4s    stop a
5s    sandbox b of job-1 on keynet 10.99.0.3
7s    kill pause of b by kubelet
7s    netns of b lost
8s    pod job-1 goes
9s    stop b
10s   remove a
10s   remove b
9m    end
expect confirmed duplicate_sandbox/after_completion job-1 a b since 5s
expect confirmed teardown_out_of_order/pause_killed kubelet job-1 b since 7s
expect confirmed leaked_address/del_blind 10.99.0.3 job-1 b since 10s
expect incident duplicate_sandbox .teardown_out_of_order ..leaked_address
