# A dual-stack pod goes as it should.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2,fd00:88::2
9s    stop a
10s   remove a
9m    end
expect nothing
