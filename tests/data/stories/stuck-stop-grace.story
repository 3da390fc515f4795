# Pause was killed, and the container has its grace, which may be long: nobody stops the sandbox before.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
60s   kill pause of a by stranger
9m    end
expect confirmed teardown_out_of_order/pause_killed chaos web-0 a
