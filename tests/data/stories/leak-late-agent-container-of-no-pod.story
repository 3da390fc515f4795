# The same, found by an agent that starts later: nothing says of which pod they are, but their monitors run.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    plain p on podnet 10.88.0.3
3s    plain default-n on podnet 10.88.0.4
1m    agent starts
9m    end
expect nothing
