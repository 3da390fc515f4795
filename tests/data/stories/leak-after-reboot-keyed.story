# Pods of before the reboot: their namespaces are gone, and DEL is blind. The agent starts late and lists them.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on keynet 10.99.0.2
2s    container main in a starts
10s   kill pause of a by stranger
10s   netns of a lost
20s   agent starts
30s   stop a
31s   remove a
9m    end
expect confirmed leaked_address/del_blind 10.99.0.2 web-0 a since 31s
