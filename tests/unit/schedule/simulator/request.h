/* tests/unit/schedule/simulator/request.h - a request of a schedule, what it must get, and what it
 * got. */
#pragma once
#include <memory>

#include "tests/unit/schedule/simulator/world.h"

namespace sim {

class Schedule;

struct Answer { /* of a choice */
    std::vector<int32_t> tokens; /* prompt and answer */
    uint64_t hash; /* of the sequence */
    int32_t n_tokens = 0;
    weir_finish finish = WEIR_FINISH_NONE;
    bool is_stopped = false; /* by its callback */
    /* The most tokens that were computed of it since its last token, and iterations since it or one
     * that it waits for got further. */
    int32_t furthest = 0, patience = 0;
    int64_t token_iteration = -1;
};

struct Request {
    Schedule *schedule = nullptr;
    weir_job *job = nullptr;
    int number = 0;
    std::vector<int32_t> prompt;
    int32_t client = 0, priority = 0, n_choices = 1, max_tokens = 0;
    bool caches = true, has_salt = false, ignores_stop = false;
    weir_sampling sampling = {};
    const char *policy = nullptr; /* nullptr: keeps all rows */
    std::string policy_options;
    int64_t kv_budget = 0;
    int64_t timeout_ns = 0, deadline_ns = 0;
    std::vector<Answer> answers;
    bool is_admitted = false, is_done = false;
    /* In which it was cancelled, was late first, ended. */
    int64_t cancel_iteration = -1, late_iteration = -1, done_iteration = -1;
    weir_status status = WEIR_OK;

    std::string name() const { return "job " + std::to_string(number); }
    std::string print() const;
};

/* Job `number` of a seed; some continue a finished one. */
void make_request(
    Request *out, uint64_t seed, int number, const Setup &setup, unsigned features,
    const std::vector<std::unique_ptr<Request>> &before
);

/* The token that follows an answer's text. */
class Oracle {
  public:
    Oracle();
    ~Oracle();
    Oracle(const Oracle &) = delete;
    Oracle &operator=(const Oracle &) = delete;
    int32_t next(const Request &request, int32_t choice);

  private:
    weir_sampler_scratch *scratch_ = nullptr;
};

} // namespace sim
