# A store lost a record by itself. The DEL that was given the namespace of another pod has nothing to do with it.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 before boot
2s    sandbox b of web-1 on podnet 10.88.0.3
2s    sandbox d of web-3 on podnet 10.88.0.5
10s   del a podnet in process of b
10s   free 10.88.0.5
5m    sandbox c of web-2 on podnet 10.88.0.5
9m    end
expect confirmed cni_wrong_del/foreign_netns bridge web-0 a b since 10s
expect confirmed duplicate_address 10.88.0.5 web-2 d c
