# A host of containers, without a kubelet: nobody needs a network of pods.
0s    runtime starts
0s    configuration gone
1s    configuration read
30m   end
expect nothing
