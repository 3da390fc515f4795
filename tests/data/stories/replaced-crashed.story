# All containers had ended before the restart.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
59s   container main in a exits 1
60s   runtime dies
61s   runtime starts
66s   stop a
67s   sandbox c of web-0 on podnet 10.88.0.4
68s   container main in c starts
70s   remove a
9m    end
expect nothing
