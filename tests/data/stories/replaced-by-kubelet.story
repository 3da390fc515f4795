# The kubelet restarts, and replaces sandboxes.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
3s    sandbox b of web-1 on podnet 10.88.0.3
4s    container main in b starts
60s   kubelet dies
61s   kubelet starts
65s   container main in a is stopped
66s   stop a
67s   sandbox c of web-0 on podnet 10.88.0.4
68s   container main in c starts
69s   stop b
70s   sandbox d of web-1 on podnet 10.88.0.5
71s   container main in d starts
72s   remove a
73s   remove b
9m    end
expect confirmed sandboxes_replaced kubelet x2 a b since 65s
