# The same with host-local.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
10s   kill pause of a by stranger
10s   netns of a lost
20s   agent starts
30s   stop a
31s   remove a
9m    end
expect nothing
