# Nothing is made any more: it is over ten minutes after the last was made, and is not told again.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
9s    container main in a exits 1
10s   stop a
11s   remove a
20s   sandbox s0 of web-0 on podnet 10.88.0.3
30s   stop s0
31s   remove s0
40s   sandbox s1 of web-0 on podnet 10.88.0.3
50s   stop s1
51s   remove s1
60s   sandbox s2 of web-0 on podnet 10.88.0.3
70s   stop s2
71s   remove s2
662s  end
expect closed duplicate_sandbox/unused_rebuild web-0 since 20s
