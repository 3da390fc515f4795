# The DEL that was given another pod's namespace freed that pod's address, and a third pod gets it.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 before boot
2s    sandbox b of web-1 on podnet 10.88.0.3
3s    container main in b starts
10s   del a podnet in process of b
10s   free 10.88.0.3
30m   sandbox c of web-2 on podnet 10.88.0.3
31m   container main in c starts
40m   end
expect closed cni_wrong_del/foreign_netns bridge web-0 a b since 10s
expect confirmed duplicate_address 10.88.0.3 web-2 b c
expect incident cni_wrong_del .duplicate_address
