"""The gated delta rule for training: a C++ kernel with its gradient, and the same in torch."""

import torch
import torch.nn.functional as F

# S is [DK][DV]; one task per (row, key head), so the gradients of q and k need no atomics.
KERNEL = r"""
#include <torch/extension.h>
#include <cmath>
#include <cstring>
#include <vector>
constexpr int D = 32; // dk == dv
constexpr int CH =
    32; // states are kept every CH tokens; the rest is recomputed in the backward pass
using V = float __attribute__((vector_size(64)));
static inline V ld(const float *p) {
  V v;
  std::memcpy(&v, p, 64);
  return v;
}
static inline void st(float *p, V v) { std::memcpy(p, &v, 64); }
static inline float hsum(V v) {
  float s = 0;
  for (int i = 0; i < 16; i++)
    s += v[i];
  return s;
}

static inline void step(float *S, const float *q, const float *k, const float *v, float eg,
                        float beta, float *o, float *save_sp) {
  V p0 = {}, p1 = {};
  for (int i = 0; i < D; i++) {
    V a = ld(S + i * D) * eg, b = ld(S + i * D + 16) * eg;
    st(S + i * D, a);
    st(S + i * D + 16, b);
    p0 += a * k[i];
    p1 += b * k[i];
  }
  if (save_sp)
    std::memcpy(save_sp, S, sizeof(float) * D * D);
  V d0 = (ld(v) - p0) * beta, d1 = (ld(v + 16) - p1) * beta, o0 = {}, o1 = {};
  for (int i = 0; i < D; i++) {
    V a = ld(S + i * D) + d0 * k[i], b = ld(S + i * D + 16) + d1 * k[i];
    st(S + i * D, a);
    st(S + i * D + 16, b);
    o0 += a * q[i];
    o1 += b * q[i];
  }
  if (o) {
    st(o, o0);
    st(o + 16, o1);
  }
}

std::vector<at::Tensor> fwd(at::Tensor q, at::Tensor k, at::Tensor v, at::Tensor g,
                            at::Tensor beta) {
  const int64_t B = q.size(0), T = q.size(1), HK = q.size(2), HV = v.size(2), R = HV / HK,
                NC = (T + CH - 1) / CH;
  at::Tensor o = at::empty_like(v), ck = at::empty({B, HV, NC, D, D}, v.options());
  const float *Q = q.data_ptr<float>(), *K = k.data_ptr<float>(), *VV = v.data_ptr<float>(),
              *G = g.data_ptr<float>(), *BE = beta.data_ptr<float>();
  float *O = o.data_ptr<float>(), *C = ck.data_ptr<float>();
  at::parallel_for(0, B * HV, 1, [&](int64_t lo, int64_t hi) {
    alignas(64) float S[D * D];
    for (int64_t it = lo; it < hi; it++) {
      const int64_t b = it / HV, h = it % HV, m = h / R;
      std::memset(S, 0, sizeof(S));
      for (int64_t t = 0; t < T; t++) {
        if (t % CH == 0)
          std::memcpy(C + ((b * HV + h) * NC + t / CH) * D * D, S, sizeof(S));
        const int64_t x = b * T + t;
        step(S, Q + (x * HK + m) * D, K + (x * HK + m) * D, VV + (x * HV + h) * D,
             std::exp(G[x * HV + h]), BE[x * HV + h], O + (x * HV + h) * D, nullptr);
      }
    }
  });
  return {o, ck};
}

std::vector<at::Tensor> bwd(at::Tensor q, at::Tensor k, at::Tensor v, at::Tensor g,
                            at::Tensor beta, at::Tensor ck, at::Tensor go) {
  const int64_t B = q.size(0), T = q.size(1), HK = q.size(2), HV = v.size(2), R = HV / HK,
                NC = (T + CH - 1) / CH;
  at::Tensor dq = at::zeros_like(q), dk = at::zeros_like(k), dv = at::empty_like(v),
             dg = at::empty_like(g), db = at::empty_like(beta);
  const float *Q = q.data_ptr<float>(), *K = k.data_ptr<float>(), *VV = v.data_ptr<float>(),
              *G = g.data_ptr<float>(), *BE = beta.data_ptr<float>(), *C = ck.data_ptr<float>(),
              *GO = go.data_ptr<float>();
  float *DQ = dq.data_ptr<float>(), *DK = dk.data_ptr<float>(), *DV = dv.data_ptr<float>(),
        *DG = dg.data_ptr<float>(), *DB = db.data_ptr<float>();
  at::parallel_for(0, B * HK, 1, [&](int64_t lo, int64_t hi) {
    std::vector<float> spv(CH * D * D + 16), sfv(CH * D * D + 16);
    float *SP = spv.data(),
          *SF = sfv.data(); // decayed and updated state of each token of the chunk
    alignas(64) float S[D * D], dS[D * D];
    for (int64_t it = lo; it < hi; it++)
      for (int64_t j = 0; j < R; j++) {
        const int64_t b = it / HK, m = it % HK, h = m * R + j;
        std::memset(dS, 0, sizeof(dS));
        for (int64_t c = NC - 1; c >= 0; c--) {
          const int64_t t0 = c * CH, n = std::min<int64_t>(CH, T - t0);
          std::memcpy(S, C + ((b * HV + h) * NC + c) * D * D, sizeof(S));
          for (int64_t s = 0; s < n; s++) {
            const int64_t x = b * T + t0 + s;
            step(S, Q + (x * HK + m) * D, K + (x * HK + m) * D, VV + (x * HV + h) * D,
                 std::exp(G[x * HV + h]), BE[x * HV + h], nullptr, SP + s * D * D);
            std::memcpy(SF + s * D * D, S, sizeof(S));
          }
          for (int64_t s = n - 1; s >= 0; s--) {
            const int64_t x = b * T + t0 + s;
            const float *qq = Q + (x * HK + m) * D, *kk = K + (x * HK + m) * D,
                        *vv = VV + (x * HV + h) * D, *oo = GO + (x * HV + h) * D;
            const float *sp = SP + s * D * D, *sf = SF + s * D * D;
            float *dqq = DQ + (x * HK + m) * D, *dkk = DK + (x * HK + m) * D;
            const float be = BE[x * HV + h], eg = std::exp(G[x * HV + h]);
            const V o0 = ld(oo), o1 = ld(oo + 16);
            V p0 = {}, p1 = {}, e0 = {}, e1 = {};
            for (int i = 0; i < D; i++) { // dS += q do^T ; dd = dS^T k ; p = S'^T k ; dq = S do
              V a = ld(dS + i * D) + o0 * qq[i], bb = ld(dS + i * D + 16) + o1 * qq[i];
              st(dS + i * D, a);
              st(dS + i * D + 16, bb);
              e0 += a * kk[i];
              e1 += bb * kk[i];
              p0 += ld(sp + i * D) * kk[i];
              p1 += ld(sp + i * D + 16) * kk[i];
              dqq[i] += hsum(ld(sf + i * D) * o0 + ld(sf + i * D + 16) * o1);
            }
            const V r0 = ld(vv) - p0, r1 = ld(vv + 16) - p1, d0 = r0 * be, d1 = r1 * be;
            DB[x * HV + h] = hsum(e0 * r0 + e1 * r1);
            const V w0 = e0 * be, w1 = e1 * be; // dv ; dp = -dv
            st(DV + (x * HV + h) * D, w0);
            st(DV + (x * HV + h) * D + 16, w1);
            V gg = {};
            for (int i = 0; i < D;
                 i++) { // dk += dS d + S' dp ; dS' = dS + k dp^T ; dg = <dS', S'>
              V a = ld(dS + i * D), bb = ld(dS + i * D + 16), sa = ld(sp + i * D),
                sb = ld(sp + i * D + 16);
              dkk[i] += hsum(a * d0 + bb * d1 - sa * w0 - sb * w1);
              a -= w0 * kk[i];
              bb -= w1 * kk[i];
              gg += a * sa + bb * sb;
              st(dS + i * D, a * eg);
              st(dS + i * D + 16, bb * eg);
            }
            DG[x * HV + h] = hsum(gg);
          }
        }
      }
  });
  return {dq, dk, dv, dg, db};
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("fwd", &fwd);
  m.def("bwd", &bwd);
}
"""
_kernel = None


def kernel():
    """Builds the extension on first use (needs a C++ compiler and ninja); None when that is not
    possible.
    """
    global _kernel
    if _kernel is None:
        try:
            from torch.utils.cpp_extension import load_inline

            _kernel = load_inline(
                "weir_demo_gdn",
                KERNEL,
                extra_cflags=["-O3", "-march=native", "-ffast-math"],
                verbose=False,
            )
        except Exception as e:  # noqa: BLE001 - any build failure means the torch path
            print("no C++ kernel, using torch:", str(e)[:200])
            _kernel = False
    return _kernel or None


class DeltaRule(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, g, beta):
        q, k, v, g, beta = [t.contiguous() for t in (q, k, v, g, beta)]
        o, ck = _kernel.fwd(q, k, v, g, beta)
        ctx.save_for_backward(q, k, v, g, beta, ck)
        return o

    @staticmethod
    def backward(ctx, go):
        return tuple(_kernel.bwd(*ctx.saved_tensors, go.contiguous()))


def delta_rule_torch(q, k, v, g, beta, chunk=64):
    """Chunked gated delta rule.  q,k [B,T,HK,D] (normalised, q scaled), v [B,T,HV,D], g,beta
    [B,T,HV].
    """
    B, T, HV, D = v.shape
    r = HV // k.shape[2]
    q, k = q.repeat_interleave(r, 2), k.repeat_interleave(r, 2)
    pad = -T % chunk
    q, k, v, g, beta = [F.pad(t, (0, 0) * (t.dim() - 2) + (0, pad)) for t in (q, k, v, g, beta)]
    n = (T + pad) // chunk
    q, k, v = [t.reshape(B, n, chunk, HV, D).permute(0, 3, 1, 2, 4) for t in (q, k, v)]
    g, beta = [t.reshape(B, n, chunk, HV).permute(0, 3, 1, 2) for t in (g, beta)]
    G = g.cumsum(-1)
    low = torch.ones(chunk, chunk, dtype=torch.bool, device=v.device).tril()
    diff = torch.where(low, G[..., :, None] - G[..., None, :], 0.0)
    decay = torch.where(low, diff.exp(), 0.0)
    A = torch.where(low.tril(-1), beta[..., None] * (k @ k.transpose(-1, -2)) * decay, 0.0)
    rhs = torch.cat([v * beta[..., None], k * (beta * G.exp())[..., None]], -1)
    U, W = torch.linalg.solve_triangular(
        A + torch.eye(chunk, dtype=A.dtype), rhs, upper=False, unitriangular=True
    ).split(D, -1)
    P = (q @ k.transpose(-1, -2)) * decay
    S, out = v.new_zeros(B, HV, D, D), []
    for c in range(n):
        d = U[:, :, c] - W[:, :, c] @ S
        out.append(G[:, :, c].exp()[..., None] * (q[:, :, c] @ S) + P[:, :, c] @ d)
        last = G[:, :, c, -1:]
        S = (
            last.exp()[..., None] * S
            + (k[:, :, c] * (last - G[:, :, c]).exp()[..., None]).transpose(-1, -2) @ d
        )
    return torch.stack(out, 2).permute(0, 2, 3, 1, 4).reshape(B, n * chunk, HV, D)[:, :T]
