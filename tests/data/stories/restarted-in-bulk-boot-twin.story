# After a boot. Containers that are newer than the daemons were not restarted by their start.
0s    runtime starts
0s    kubelet starts
30s   sandbox a of web-0 on podnet 10.88.0.2
30s   container main in a starts
31s   sandbox b of web-1 on podnet 10.88.0.3
31s   container main in b starts
32s   sandbox c of web-2 on podnet 10.88.0.4
32s   container main in c starts
65s   container main in a is stopped
66s   container main in a starts
67s   container main in b is stopped
68s   container main in b starts
69s   container main in c is stopped
70s   container main in c starts
9m    end
expect nothing
