# Pause ends, and neither kubelet nor runtime does anything about it.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
10s   kill pause of a by stranger
9m    end
expect confirmed teardown_out_of_order/pause_killed web-0 a since 10s
expect confirmed stuck_stop/del x0 web-0 a since 10s
expect incident teardown_out_of_order .+stuck_stop
