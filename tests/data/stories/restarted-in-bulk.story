# The kubelet was upgraded, takes the containers of three of four pods for changed, and restarts them.
0s    runtime starts
0s    kubelet starts as v1.30.8
1s    sandbox a of web-0 on podnet 10.88.0.2
1s    container main in a starts
2s    sandbox b of web-1 on podnet 10.88.0.3
2s    container main in b starts
3s    sandbox c of web-2 on podnet 10.88.0.4
3s    container main in c starts
4s    sandbox d of web-3 on podnet 10.88.0.5
4s    container main in d starts
5s    container proxy in b starts
60s   kubelet dies
61s   kubelet starts as v1.31.4
65s   container main in a is stopped
66s   container main in a starts
67s   container main in b is stopped
68s   container main in b starts
69s   container main in c is stopped
70s   container main in c starts
71s   container proxy in b is stopped
72s   container proxy in b starts
9m    end
expect confirmed restarted_in_bulk kubelet 4 of 3 kubelet v1.30.8 kubelet v1.31.4 a b c since 65s
