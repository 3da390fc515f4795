# It goes on for longer than anything is remembered: one finding, under one key.
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
220s   sandbox s1 of web-0 on podnet 10.88.0.3
230s   stop s1
231s   remove s1
420s   sandbox s2 of web-0 on podnet 10.88.0.3
430s   stop s2
431s   remove s2
620s   sandbox s3 of web-0 on podnet 10.88.0.3
630s   stop s3
631s   remove s3
820s   sandbox s4 of web-0 on podnet 10.88.0.3
830s   stop s4
831s   remove s4
1020s   sandbox s5 of web-0 on podnet 10.88.0.3
1030s   stop s5
1031s   remove s5
1220s   sandbox s6 of web-0 on podnet 10.88.0.3
1230s   stop s6
1231s   remove s6
1420s   sandbox s7 of web-0 on podnet 10.88.0.3
1430s   stop s7
1431s   remove s7
1620s   sandbox s8 of web-0 on podnet 10.88.0.3
1630s   stop s8
1631s   remove s8
1820s   sandbox s9 of web-0 on podnet 10.88.0.3
1830s   stop s9
1831s   remove s9
2020s   sandbox s10 of web-0 on podnet 10.88.0.3
2030s   stop s10
2031s   remove s10
2220s   sandbox s11 of web-0 on podnet 10.88.0.3
2230s   stop s11
2231s   remove s11
2420s end
expect confirmed duplicate_sandbox/unused_rebuild web-0 since 20s
