# After a reboot the kubelet stops what the runtime has on record, and makes it anew.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
3s    sandbox b of web-1 on podnet 10.88.0.3
4s    container main in b starts
10s   kill pause of a by stranger
10s   netns of a lost
11s   kill pause of b by stranger
11s   netns of b lost
12s   runtime dies
12s   kubelet dies
20s   runtime starts
20s   kubelet starts
21s   agent starts
30s   stop a
31s   sandbox c of web-0 on podnet 10.88.0.4
32s   container main in c starts
33s   stop b
34s   sandbox d of web-1 on podnet 10.88.0.5
35s   remove a
36s   remove b
9m    end
expect nothing
