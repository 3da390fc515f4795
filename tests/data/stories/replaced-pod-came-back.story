# The pod is deleted after a restart of the kubelet, and comes again with the same UID, as a static pod does.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
60s   kubelet dies
61s   kubelet starts
65s   container main in a is stopped
66s   stop a
67s   remove a
68s   pod web-0 goes
85s   pod web-0
86s   sandbox b of web-0 on podnet 10.88.0.3
87s   container main in b starts
9m    end
expect nothing
