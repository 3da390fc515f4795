# The same with host-local, which frees by container id.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9s    stop a del-fails
20s   netns of a lost
21s   del a
30s   remove a
9m    end
expect nothing
