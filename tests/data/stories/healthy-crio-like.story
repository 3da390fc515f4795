# A sandbox without a pause on the host: only its containers run.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 begins
1s    add a podnet 10.88.0.2
9s    del a
9s    netns of a lost
10s   remove a
9m    end
expect nothing
