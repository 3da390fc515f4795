# Pause was killed before the runtime replaced the sandbox: the restart is not to blame.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
60s   runtime dies
61s   runtime starts
62s   kill pause of a by stranger
66s   stop a
67s   sandbox c of web-0 on podnet 10.88.0.4
68s   container main in c starts
70s   remove a
9m    end
expect confirmed teardown_out_of_order/pause_killed
