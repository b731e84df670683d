#include "tests/unit/schedule/simulator/request.h"

#include <algorithm>

#include "tests/unit/schedule/simulator/schedule.h"

namespace sim {
namespace {

constexpr int kRoots = 3, kClients = 3, kTokens = 30;

int32_t any_token(Random &random) { return random.between(2, SIM_VOCAB - 1); }

// Sequences that many prompts begin with; of a branch point the first tokens only.
std::vector<int32_t> root(uint64_t seed, int index, int32_t n)
{
    Random random(seed * 31 + static_cast<uint64_t>(index));
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < n; i++) tokens.push_back(any_token(random));
    return tokens;
}

std::vector<int32_t> make_prompt(
    Random &random, uint64_t seed, int32_t most, unsigned features,
    const std::vector<std::unique_ptr<Request>> &before
)
{
    std::vector<int32_t> prompt;
    const bool shares = (features & SHARING) != 0;
    if (shares && random.one_in(3) && !before.empty()) { // its next prompt, or the same again
        const Request &past = *before[static_cast<size_t>(random.pick((int)before.size()))];
        prompt = random.one_in(3) ? past.prompt : past.answers[0].tokens;
        if (random.one_in(2) && prompt.size() > 3) prompt.pop_back();
    } else if (shares && !random.one_in(4)) {
        prompt = root(seed, random.pick(kRoots), random.between(1, most));
    }
    const int n_own = prompt.empty()     ? random.between(1, most)
                      : random.one_in(3) ? 0
                                         : random.pick(90);
    for (int i = 0; i < n_own; i++) // as answers are (sim_logits)
        prompt.push_back(
            i > 0 && !random.one_in(4) ? (prompt.back() * 5 + 3) % SIM_VOCAB : any_token(random)
        );
    if (prompt.size() > static_cast<size_t>(most)) prompt.resize(static_cast<size_t>(most));
    return prompt;
}

} // namespace

std::string Request::print() const
{
    return name() + ": " + std::to_string(prompt.size()) + " tokens + " +
           std::to_string(max_tokens) + " x " + std::to_string(n_choices) + ", client " +
           std::to_string(client) + ", priority " + std::to_string(priority) +
           (caches ? "" : ", not cached") + (has_salt ? ", salted" : "") +
           (policy != nullptr ? ", " + std::string(policy) + ":" + policy_options + " of " +
                                    std::to_string(kv_budget)
                              : "") +
           (timeout_ns > 0 ? ", timeout " + std::to_string(timeout_ns / 1000000) + " ms" : "");
}

void make_request(
    Request *out, uint64_t seed, int number, const Setup &setup, unsigned features,
    const std::vector<std::unique_ptr<Request>> &before
)
{
    Random random(seed * 1000003 + static_cast<uint64_t>(number));
    const int32_t window = 64 * setup.window_blocks;
    out->number = number;
    out->max_tokens = random.one_in(40) ? 0 : random.between(1, kTokens);
    out->n_choices = random.one_in(5) ? random.between(1, std::min(setup.slots, 16)) : 1;
    if ((features & CHOICES) == 0) out->n_choices = 1;
    out->client = random.pick(kClients);
    out->priority = random.one_in(4) ? random.between(-1, 1) : 0;
    if ((features & PRIORITIES) == 0) out->priority = 0;
    out->caches = !random.one_in(6);
    out->has_salt = random.one_in(8);
    out->ignores_stop = random.one_in(2);
    out->sampling = weir_sampling_default();
    out->sampling.temperature = random.one_in(2) ? 1.0f : 0.0f;
    out->sampling.seed = random.bits();
    const int64_t timeout_ms = random.between(1, 400);
    if ((features & TIMEOUTS) != 0 && random.one_in(10)) out->timeout_ns = timeout_ms * 1000000;
    const bool evicts = setup.evicts && (features & POLICIES) != 0 && random.one_in(2);
    const char *const policy = random.one_in(2) ? "sinks" : "random";
    const int budget = random.between(20, 200), every = 16 * random.between(1, 4);
    if (evicts) {
        out->policy = policy;
        out->policy_options =
            "recent=8,every=" + std::to_string(every) + (random.one_in(2) ? ",in_prompt=true" : "");
        out->kv_budget = budget;
    }
    // Whole blocks at the beginning stay where they are, also some that are not on disk.
    if (evicts && setup.prunes && !random.one_in(3)) {
        out->policy = "sinks";
        out->policy_options += ",sinks=" + std::to_string(64 * random.between(2, 5));
        out->kv_budget += 320;
    }
    const int32_t most = random.one_in(8) ? window : std::max(1, window - out->max_tokens);
    out->prompt = make_prompt(random, seed, most, features, before);
    Answer answer = {};
    answer.tokens = out->prompt;
    answer.hash = 0;
    for (const int32_t token : out->prompt) answer.hash = sim_hash(answer.hash, token);
    out->answers.assign(static_cast<size_t>(out->n_choices), answer);
}

Oracle::Oracle()
{
    if (weir_sampler_scratch_open(&scratch_, SIM_VOCAB) != WEIR_OK) abort();
}
Oracle::~Oracle() { weir_sampler_scratch_close(scratch_); }

int32_t Oracle::next(const Request &request, int32_t choice)
{
    static const int32_t stop[] = { SIM_STOP };
    const Answer &answer = request.answers[static_cast<size_t>(choice)];
    weir_sampler_history history = {};
    const weir_sample_limits limits = { stop, request.ignores_stop, nullptr };
    float logits[SIM_VOCAB];
    history.n_vocab = SIM_VOCAB;
    sim_logits(logits, answer.hash, answer.tokens.back());
    return weir_sample(
        logits, SIM_VOCAB, SIM_VOCAB, &request.sampling, &history, &limits,
        static_cast<uint32_t>(choice), static_cast<uint64_t>(answer.n_tokens), scratch_
    );
}

} // namespace sim
