# The plugin's DEL fails each time the kubelet has the sandbox stopped.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
9s    container main in a is stopped
10s   stop a del-fails
20s   del a del-fails
40s   del a del-fails
9m    end
expect confirmed stuck_stop/del x3 web-0 a since 10s
expect confirmed cni_failing/del bridge x3 web-0 a since 10s
expect incident cni_failing .stuck_stop
