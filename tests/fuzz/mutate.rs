//! Makes inputs from others. The results are always the same.

/// The maximum number of changes of one input.
const CHANGES: usize = 4;
/// Bytes that parsers may treat specially.
const BYTES: [u8; 14] = *b"\x00\x01\x7f\x80\xff\n\"{[-,0 9";

pub(super) struct Mutator<'a> {
    seeds: &'a [Vec<u8>],
    state: u64,
}

impl<'a> Mutator<'a> {
    pub(super) fn new(seeds: &'a [Vec<u8>]) -> Self {
        Self { seeds, state: 1 }
    }

    pub(super) fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.seed().to_vec();
        for _ in 0..=self.below(CHANGES) {
            self.change(&mut input);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let begin = self.below(input.len() + 1);
        let end = (begin + self.below(16)).min(input.len());
        match self.below(6) {
            0 => drop(input.drain(begin..end)),
            1 => {
                let again = input[begin..end].to_vec();
                input.splice(begin..begin, again);
            }
            2 => input.truncate(begin),
            3 => {
                let other = self.seed();
                let from = self.below(other.len() + 1);
                let until = (from + self.below(64)).min(other.len());
                input.splice(begin..end, other[from..until].iter().copied());
            }
            kind => {
                let byte = BYTES[self.below(BYTES.len())];
                let bit = 1 << self.below(8);
                if let Some(place) = input.get_mut(begin) {
                    *place = if kind == 4 { byte } else { *place ^ bit };
                }
            }
        }
    }

    fn seed(&mut self) -> &'a [u8] {
        &self.seeds[self.below(self.seeds.len())]
    }

    /// Knuth's generator.
    fn below(&mut self, end: usize) -> usize {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.state >> 33).unwrap_or(0) % end
    }
}
