# After a sandbox that ran, three are made in a row and none runs anything.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
9s    container main in a exits 1
10s   stop a
20s   sandbox b of web-0 on podnet 10.88.0.3
30s   stop b
40s   sandbox c of web-0 on podnet 10.88.0.3
50s   stop c
60s   sandbox d of web-0 on podnet 10.88.0.3
70s   stop d
71s   remove a
71s   remove b
71s   remove c
71s   remove d
9m    end
expect confirmed duplicate_sandbox/unused_rebuild web-0
