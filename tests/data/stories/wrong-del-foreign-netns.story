# A DEL is given the namespace of another sandbox.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 begins
2s    add a podnet 10.88.0.2
3s    sandbox a runs
4s    sandbox b of web-1 on podnet 10.88.0.3
10s   del a podnet in b
11s   stop a
12s   remove a
9m    end
expect confirmed cni_wrong_del/foreign_netns bridge web-0 a since 10s
