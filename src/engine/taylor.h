/* engine/taylor.h - the Taylor polynomial of e^x of an even order r, as a product of squares:
 *
 *     sum_(m <= r) x^m / m! = (1 / r!) prod_(j < r / 2) ((x - a_j)^2 + b_j),
 *
 * which has no cancellation. */
#ifndef SMX_ENGINE_TAYLOR_H
#define SMX_ENGINE_TAYLOR_H

enum { TAYLOR_FACTORS_MOST = 4 };

/* a_j and b_j, by r / 2 - 1. */
static const double taylor_roots[TAYLOR_FACTORS_MOST][TAYLOR_FACTORS_MOST][2] = {
    {{-1, 1}},
    {{-1.7294442310677054566, 0.79027544140126057134}, {-0.27055576893229454343, 6.2739023310746515695}},
    {{-2.3618101804823029459, 0.70283118848510559937},
     {-1.4418013905495436957, 5.9269006882395055305},
     {0.8036115710318466416, 13.672998258792107815}},
    {{-2.9645995051603559749, 0.65428414839751327289},
     {-2.2864292841711760319, 5.6535127751635661789},
     {-0.78879362038762367239, 14.226556589923037186},
     {2.0398224097191556792, 22.265326422785104896}},
};

#endif
