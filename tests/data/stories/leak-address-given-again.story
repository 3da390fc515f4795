# An address is freed and given to the next pod within seconds.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of db-0 on podnet 10.88.0.2
9s    stop a
10s   sandbox b of db-0 on podnet 10.88.0.2
11s   container main in b starts
12s   remove a
9m    end
expect nothing
