# The first process of a virtual machine starts another one and ends.
0s    runtime starts
0s    kubelet starts
1s    pod web-0
1s    sandbox a of web-0 under kata on podnet 10.88.0.2
3s    container main in a starts
4s    vm of a gives way
20m   end
expect nothing
