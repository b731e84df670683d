/* tests/kernel/cases_internal.h - what the files of cases share. */
#pragma once
#include <initializer_list>

#include "tests/kernel/cases.h"

namespace weir_test {

std::vector<Case> rowwise_cases(weir_op op);
std::vector<Case> rowwise_benches(weir_op op);
std::vector<Case> kv_cases(weir_op op);
std::vector<Case> kv_benches(weir_op op);
std::vector<Case> attention_cases(weir_op op);
std::vector<Case> attention_benches(weir_op op);
std::vector<Case> recurrent_cases(weir_op op);
std::vector<Case> recurrent_benches(weir_op op);
std::vector<Case> coda_cases(weir_op op);
std::vector<Case> coda_benches(weir_op op);
std::vector<Case> experts_cases(weir_op op);
std::vector<Case> experts_benches(weir_op op);
std::vector<Case> cuda_matmul_cases(weir_op op);
std::vector<Case> cuda_matmul_benches(weir_op op);

std::string label(const char *op, std::initializer_list<int64_t> numbers);
std::string suffix(Fill fill);
/* Element types that weight files hold and kernels read. */
const std::vector<weir_dtype> &file_dtypes();
/* n elements (a multiple of the block) of weights around 0.02 in size; block scales are small
 * positive halves, quants any bits. */
void fill_weights(Builder &b, void *data, weir_dtype dtype, int64_t n);

} // namespace weir_test
