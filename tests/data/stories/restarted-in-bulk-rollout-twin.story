# A Deployment is rolled out after the kubelet's start: each pod ends with its sandbox, and another one comes.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
1s    container main in a starts
2s    sandbox b of web-1 on podnet 10.88.0.3
2s    container main in b starts
3s    sandbox c of web-2 on podnet 10.88.0.4
3s    container main in c starts
60s   kubelet dies
61s   kubelet starts
65s   sandbox d of web-3 on podnet 10.88.0.5
65s   container main in d starts
66s   stop a
67s   remove a
67s   pod web-0 goes
68s   sandbox e of web-4 on podnet 10.88.0.6
68s   container main in e starts
69s   stop b
70s   remove b
70s   pod web-1 goes
71s   sandbox f of web-5 on podnet 10.88.0.7
71s   container main in f starts
72s   stop c
73s   remove c
73s   pod web-2 goes
9m    end
expect nothing
