# The kubelet restarts, and three of seven pods restart their container soon after: a probe fails.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
1s    container main in a starts
2s    sandbox b of web-1 on podnet 10.88.0.3
2s    container main in b starts
3s    sandbox c of web-2 on podnet 10.88.0.4
3s    container main in c starts
4s    sandbox d of web-3 on podnet 10.88.0.5
4s    container main in d starts
5s    sandbox e of web-4 on podnet 10.88.0.6
5s    container main in e starts
6s    sandbox f of web-5 on podnet 10.88.0.7
6s    container main in f starts
7s    sandbox g of web-6 on podnet 10.88.0.8
7s    container main in g starts
60s   kubelet dies
61s   kubelet starts
65s   container main in a is stopped
66s   container main in a starts
67s   container main in b is stopped
68s   container main in b starts
69s   container main in c is stopped
70s   container main in c starts
9m    end
expect nothing
