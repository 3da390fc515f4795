# The image cannot be pulled: one sandbox waits.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9m    end
expect nothing
