# The plugin reports success for each DEL, and does not call its IPAM plugin.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9s    stop a del-hollow
10s   remove a del-hollow
9m    end
expect confirmed leaked_address/del_hollow 10.88.0.2 web-0 a
