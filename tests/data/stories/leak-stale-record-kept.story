# A store names a dead sandbox that its runtime still knows.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9s    stop a no-del
20s   agent starts
9m    end
expect nothing
