# ADD fails, and the runtime calls DEL for it.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 begins
1s    add a podnet 10.88.0.2 fails-holding
2s    del a
2s    netns of a lost
10s   sandbox b of web-0 on podnet 10.88.0.2
11s   container main in b starts
9m    end
expect nothing
