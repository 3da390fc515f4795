# It is about the past, and closes after a while.
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
65s   container main in a is stopped
66s   container main in a starts
67s   container main in b is stopped
68s   container main in b starts
69s   container main in c is stopped
70s   container main in c starts
15m   end
expect closed restarted_in_bulk kubelet 3 of 3 a b c since 65s
