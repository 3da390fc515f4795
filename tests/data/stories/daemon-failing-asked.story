# The runtime is stopped, and its program is asked for its configuration again and again.
0s    kubelet starts
20s   runtime starts
2m    runtime is stopped
130s  runtime is asked
135s  runtime is asked
140s  runtime is asked
145s  runtime is asked
150s  runtime starts
9m    end
expect nothing
