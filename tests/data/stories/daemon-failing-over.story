# The kubelet comes up at the seventh try.
0s    runtime starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
20s   kubelet starts
21s   kubelet fails 1
31s   kubelet starts
32s   kubelet fails 1
42s   kubelet starts
43s   kubelet fails 1
53s   kubelet starts
54s   kubelet fails 1
64s   kubelet starts
65s   kubelet fails 1
75s   kubelet starts
76s   kubelet fails 1
86s   kubelet starts
9m    end
expect closed daemon_failing/1 kubelet x6 since 20s
