# The agent starts late beside a pod that lives.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
20s   agent starts
60s   stop a
61s   pod web-0 goes
62s   remove a
9m    end
expect nothing
