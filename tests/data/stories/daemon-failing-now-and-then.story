# The runtime fails now and then, and runs in between.
0s    kubelet starts
10s   runtime starts
40s   runtime fails 2
45s   runtime starts
3m    runtime fails 2
185s  runtime starts
200s  runtime fails 2
205s  runtime starts
9m    end
expect nothing
