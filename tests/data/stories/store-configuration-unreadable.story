# Not all of the configuration can be read: it may name the network, and nothing is told.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9s    stop a no-del
10s   remove a no-del
11s   network podnet unconfigured
12s   configuration half-read
20s   agent starts
9m    end
expect nothing
