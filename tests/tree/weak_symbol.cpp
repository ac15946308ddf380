// What an ISA object must not hold, for the test that isa_exports.sh finds it: an inline function that is not local,
// and an object that code constructs while the program loads.
namespace headwise::weak_symbol {

inline int twice(int x) { return 2 * x; }

extern volatile int one;
volatile int one = 1;
extern const int kTwo;
const int kTwo = twice(one);

int (*pointer())(int);
int (*pointer())(int) { return twice; }

}  // namespace headwise::weak_symbol
