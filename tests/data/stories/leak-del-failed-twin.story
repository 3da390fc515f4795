# A DEL fails, is tried again and succeeds.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9s    stop a del-fails
60s   del a
61s   netns of a lost
70s   remove a
9m    end
expect nothing
