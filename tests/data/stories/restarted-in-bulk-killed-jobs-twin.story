# What a process kills is not started again: jobs that may not be repeated, or a node that is emptied.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
1s    container main in a starts
2s    sandbox b of web-1 on podnet 10.88.0.3
2s    container main in b starts
3s    sandbox c of web-2 on podnet 10.88.0.4
3s    container main in c starts
60s   container main in a is killed by pkill
61s   container main in b is killed by pkill
62s   container main in c is killed by pkill
65s   stop a
66s   remove a
66s   pod web-0 goes
67s   stop b
68s   remove b
68s   pod web-1 goes
69s   stop c
70s   remove c
70s   pod web-2 goes
9m    end
expect nothing
