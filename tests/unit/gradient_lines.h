// Lists problems that kernels are tested on (kernel_problems.h): transposed layers, and gradients of weights.
#pragma once

#include <vector>

namespace convtune {

inline std::vector<const char*> transposed_lines() {
  return {
      // Transposed layers: the filter turned; residues of a stride between each other, cropped, of one
      // part and of several.
      "mb2ic16ih9oc24kh3ph1 layout=nhwc dir=transposed act=relu",
      "mb2ic24ih8oc16kh4sh2ph1 layout=nhwc dir=transposed residual=1",
      "mb1ic40ih7oc24kh2sh2 dir=transposed",
      "mb1ic40ih7oc24kh3sh2ph1 dir=transposed",
      "mb1ic64ih5oc64kh3sh2ph1 layout=nhwc dir=transposed",
      "mb1ic32iw21oc16kw8sw4pw2 dir=transposed act=relu",
      "mb2ic16ih6oc24oh12kh3sh2ph1 layout=nhwc dir=transposed",
      "mb1ic16id3ih4iw5oc8kd2kh2kw2sd2sh2sw2 layout=nhwc dir=transposed residual=1",
      // Residues with a tap less beside the others.
      // Residues without a tap, by strides over dilated filters and by strides beyond the filter.
      // Groups.
      "mb2ic72id3ih5iw6oc136kd3kh3kw3sd2sh2sw2pd1ph1pw1 layout=nhwc dir=transposed act=relu",
      "mb1ic64ih5iw7oc24kh5kw3sh3sw2ph2pw1 layout=nhwc dir=transposed residual=1",
      "mb1ic16iw21oc24kw3sw2pw1dw1 dir=transposed residual=1",
      "mb2ic16ih5oc24kh3sh5ph1dh1 dir=transposed act=relu",
      "mb1ic16ih6oc16kh4sh3ph2dh1 dir=transposed",
      "mb1ic16ih6oc8kh1sh2 layout=nhwc dir=transposed",
      "mb1g2ic32id3ih4iw5oc16kd3kh5kw3sd2sh2sw2pd1ph2pw1 dir=transposed",
      "mb2g2ic32ih7iw6oc24kh3kw5sh2sw3ph1pw2dh1dw0 dir=transposed bias=0",
      "mb2g4ic32ih5iw6oc64kh3kw3sh2sw2ph1pw1 layout=nhwc dir=transposed act=relu residual=1",
      // Depthwise: residues with taps and without, strides along one axis, dilations, rows of any width.
      "g16mb2ic16ih7iw6oc16kh3kw3sh2sw2ph1pw1 layout=nhwc dir=transposed act=relu",
      "g24mb2ic24ih6oc24oh12kh5sh2ph2 layout=nhwc dir=transposed residual=1",
      "g8mb2ic8ih5oc8kh7sh2ph3 layout=nhwc dir=transposed bias=0",
      "g5mb3ic5ih6iw9oc5kh2kw4sh3sw1ph0pw1 layout=nhwc dir=transposed",
      "g12mb1ic12ih5iw7oc12kh3kw3sh4sw2ph2pw2dh1dw1 layout=nhwc dir=transposed act=relu",
      "g6mb2ic6ih8oc6oh16kh3sh2ph1 dir=transposed",
      "g5mb2ic5ih7iw6oc5kh5kw5sh2sw2ph2pw2 dir=transposed residual=1",
      "g3mb1ic3ih4iw9oc3kh1kw3sh2sw3ph0pw2dh0dw1 dir=transposed bias=0",
      // In fp32, with residues of a row abreast: some without the first column, more channels than are stored
      // at a time, over time, a row longer than a warp's pixels.
      "mb1g2ic16id3ih4iw5oc16kd3kh5kw7sd2sh2sw2pd1ph2pw3 precision=fp32 dir=transposed",
      "mb1g2ic16ih5iw41oc32kh3kw5sh2sw3ph1pw2dh1dw0 precision=fp32 dir=transposed act=relu",
      "mb1ic8ih3iw9oc24kh1kw4sh1sw4 precision=fp32 dir=transposed",
  };
}

inline std::vector<const char*> gradient_lines() {
  return {
      // Depthwise, channels last: strides, dilations, strips of a part of a row, padding that nothing meets,
      // channels that are no whole words.
      "g8mb2ic8ih12iw16oc8kh3ph1 layout=nhwc dir=bwd_w",
      "g37mb2ic37ih15oc37kh5sh2ph2 layout=nhwc dir=bwd_w bias=0",
      "g24mb3ic24ih13iw19oc24kh7ph3 layout=nhwc dir=bwd_w",
      "g20mb1ic20ih16iw11oc20kh3ph2dh1 layout=nhwc dir=bwd_w",
      "g12mb2ic12ih17iw33oc12kh5kw3sh2sw1ph1pw2 layout=nhwc dir=bwd_w bias=0",
      "g16mb5ic16ih7oc16kh7ph3 layout=nhwc dir=bwd_w",
      "g6mb1ic6ih9iw8oc6kh2kw3sh3sw2dh0dw1ph4pw0 layout=nhwc dir=bwd_w",
      "g40mb1ic40ih6iw70oc40kh3ph1 layout=nhwc dir=bwd_w",
      // Depthwise on tensor cores: columns of a part of a block, strips of several images, beside and below
      // each other, dilations.
      "g8mb3ic8ih9iw13oc8kh5ph2 layout=nhwc dir=bwd_w",
      "g16mb1ic16ih21iw140oc16kh3ph1 layout=nhwc dir=bwd_w bias=0",
      "g24mb2ic24ih12iw10oc24kh3kw5ph2dh1dw0 layout=nhwc dir=bwd_w",
      "g40mb2ic40ih17iw28oc40kh7kw3ph0pw2 layout=nhwc dir=bwd_w",
      // In NCHW, columns by fours and one by one, any number of channels.
      "g10mb3ic10ih9iw12oc10kh7ph3 dir=bwd_w",
      "g16mb2ic16ih15oc16kh5ph2 dir=bwd_w bias=0",
      "g21mb1ic21ih12iw84oc21kh3ph1 dir=bwd_w",
      // First layers and groups: patches, strides, filters that are no sixteens, groups of few and of many
      // channels.
      "mb2ic3ih19iw23oc40kh7sh2ph3 layout=nhwc dir=bwd_w",
      "mb2ic3ih16iw24oc16kh4sh4 layout=nhwc dir=bwd_w bias=0",
      "mb1ic4ih13iw18oc24kh3ph1 layout=nhwc dir=bwd_w",
      "mb1ic1ih20iw17oc8kh5sh3ph2dh1 layout=nhwc dir=bwd_w",
      "g8mb2ic32ih13iw17oc32kh3ph1 layout=nhwc dir=bwd_w",
      "g4mb1ic32ih15oc32kh3sh2ph1 layout=nhwc dir=bwd_w bias=0",
      "g3mb1ic48ih9iw11oc48kh3ph2dh1 layout=nhwc dir=bwd_w",
      "g2mb2ic64ih8oc128kh3ph1 layout=nhwc dir=bwd_w",
      "mb2ic24ih9oc40kh3kw2ph1 layout=nhwc dir=bwd_w",
      // Windows of three taps: 32 channels at each, of many parts.
      "mb1ic32ih18oc80kh1kw3ph0pw1 layout=nhwc dir=bwd_w",
      "mb1ic32ih18oc80kh3kw1ph1pw0 layout=nhwc dir=bwd_w",
      // First layers of volumes, whose frames are channels: of four and of six, by strides, dilated over
      // time,
      // and converted.
      "mb2ic1id7ih10iw13oc24kd3kh3kw3pd1ph1pw1 layout=nhwc dir=bwd_w",
      "mb1ic2id6ih9iw17oc40kd3kh5kw3sd2sh1sw2pd2ph2pw1 layout=nhwc dir=bwd_w bias=0",
      "mb2ic1id5ih11iw12oc16kd4kh3kw3sd1sh2sw2dd1dh0dw0pd3ph1pw1 layout=nhwc dir=bwd_w",
      "mb1ic1id6ih9iw10oc32kd3kh3kw3pd1ph1pw1 dir=bwd_w",
      // Halves in NCHW, converted: rows and planes that are no whole 16 bytes, 1x1, strides, frames, groups.
      "mb2ic24ih9iw7oc40kh3ph1 dir=bwd_w",
      "mb3ic16ih8oc72kh1 dir=bwd_w bias=0",
      "mb1ic72ih15iw12oc16kh3sh2ph1 dir=bwd_w",
      // 1x1 in NCHW: planes that begin at multiples of 16, 8, 4 and 2 bytes, tiles of a part of dw.
      "mb2ic40ih7oc24kh1 dir=bwd_w",
      "mb3ic24ih14oc40kh1 dir=bwd_w",
      "mb2ic130ih4iw6oc70kh1 dir=bwd_w",
      "mb1ic20id3ih5iw2oc9kd1kh1kw1 dir=bwd_w bias=0",
      "mb2ic16id4ih6iw7oc24kd3kh3kw3pd1ph1pw1 dir=bwd_w",
      "mb2ic3ih19iw23oc40kh7sh2ph3 dir=bwd_w",
      "g8mb2ic32ih13iw17oc32kh3ph1 dir=bwd_w",
  };
}

}  // namespace convtune
