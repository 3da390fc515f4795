# The same over half an hour: each for a reason of its own.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
9s    container main in a exits 1
10s   stop a
11s   remove a
20s   sandbox b of web-0 on podnet 10.88.0.3
30s   stop b
31s   remove b
400s  sandbox c of web-0 on podnet 10.88.0.3
410s  stop c
411s  remove c
9m    end
expect nothing
