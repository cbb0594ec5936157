// Converts colors with Little CMS. Each transform has its own library context, so threads share nothing. The
// library's error messages about hostile profiles are discarded.
#include "colour.h"

#include "profile.h"

#include <math.h>
#include <stdlib.h>

#include <lcms2.h>

struct ColourTransform {
    cmsContext context;
    cmsHTRANSFORM transform;
    bool copies_alpha;
};

static bool is_close(double one, double other) {
    return fabs(one - other) < 0.002;
}

static bool has_colorant(cmsHPROFILE profile, cmsTagSignature tag, double x, double y, double z) {
    const cmsCIEXYZ *colour = cmsReadTag(profile, tag);
    return colour && is_close(colour->X, x) && is_close(colour->Y, y) && is_close(colour->Z, z);
}

// sRGB's tone curve (IEC 61966-2-1).
static double linear(double value) {
    return value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4);
}

static bool has_curve(cmsHPROFILE profile, cmsTagSignature tag) {
    const cmsToneCurve *curve = cmsReadTag(profile, tag);
    if (!curve) return false;
    for (int step = 0; step <= 16; step++) {
        double value = step / 16.0;
        if (!is_close(cmsEvalToneCurveFloat(curve, (float)value), linear(value))) return false;
    }
    return true;
}

// Recognizes sRGB by the profile's values, not by its name, because many variants with slightly different bits
// exist. The colorants are sRGB's, adapted to D50.
static bool is_srgb(cmsHPROFILE profile) {
    return cmsIsMatrixShaper(profile)
        && has_colorant(profile, cmsSigRedColorantTag, 0.4361, 0.2225, 0.0139)
        && has_colorant(profile, cmsSigGreenColorantTag, 0.3851, 0.7169, 0.0971)
        && has_colorant(profile, cmsSigBlueColorantTag, 0.1431, 0.0606, 0.7141)
        && has_curve(profile, cmsSigRedTRCTag) && has_curve(profile, cmsSigGreenTRCTag)
        && has_curve(profile, cmsSigBlueTRCTag);
}

static cmsHPROFILE grey_profile(cmsContext context) {
    const double parameters[] = {2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045};
    cmsToneCurve *curve = cmsBuildParametricToneCurve(context, 4, parameters);
    if (!curve) return NULL;
    cmsHPROFILE profile = cmsCreateGrayProfileTHR(context, cmsD50_xyY(), curve);
    cmsFreeToneCurve(curve);
    return profile;
}

static const char *space_of(int channels, bool is_cmyk) {
    return is_cmyk ? "CMYK" : channels < 3 ? "GRAY" : "RGB ";
}

static void make(ColourTransform *made, cmsHPROFILE from, int channels, bool is_cmyk) {
    static const cmsUInt32Number formats[] = {
        TYPE_GRAY_8, TYPE_GRAYA_8, TYPE_RGB_8, TYPE_RGBA_8};
    cmsUInt32Number format = formats[channels - 1];
    bool is_grey = channels < 3;
    cmsHPROFILE to = is_grey ? grey_profile(made->context) : cmsCreate_sRGBProfileTHR(made->context);
    if (!to) return;
    // cmsFLAGS_NOCACHE: the cache of the last pixel costs more than it saves.
    cmsUInt32Number flags = cmsFLAGS_NOCACHE | (made->copies_alpha ? cmsFLAGS_COPY_ALPHA : 0);
    made->transform = cmsCreateTransformTHR(made->context, from,
        is_cmyk ? TYPE_CMYK_8_REV : format, to, is_cmyk ? TYPE_RGB_8 : format,
        INTENT_PERCEPTUAL, flags);
    cmsCloseProfile(to);
}

ColourTransform *colour_transform_open(
    const uint8_t *icc, size_t count, int channels, bool is_cmyk) {
    if (channels < 1 || channels > 4 || count > MAX_PROFILE) return NULL;
    if (!profile_is_of(icc, count, space_of(channels, is_cmyk))) return NULL;
    ColourTransform *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->copies_alpha = !is_cmyk && (channels == 2 || channels == 4);
    made->context = cmsCreateContext(NULL, NULL);
    cmsHPROFILE from = made->context
        ? cmsOpenProfileFromMemTHR(made->context, icc, (cmsUInt32Number)count) : NULL;
    if (from && !is_srgb(from)) make(made, from, channels, is_cmyk);
    if (from) cmsCloseProfile(from);
    if (made->transform) return made;
    colour_transform_close(made);
    return NULL;
}

void colour_transform_run(
    ColourTransform *transform, const uint8_t *in, uint8_t *out, size_t pixels) {
    cmsDoTransform(transform->transform, in, out, (cmsUInt32Number)pixels);
}

void colour_transform_close(ColourTransform *transform) {
    if (!transform) return;
    if (transform->transform) cmsDeleteTransform(transform->transform);
    if (transform->context) cmsDeleteContext(transform->context);
    free(transform);
}
