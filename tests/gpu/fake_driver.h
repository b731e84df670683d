/* tests/gpu/fake_driver.h - what the driver of fake_driver.c saw; `fake_driver` is its symbol for
 * it. */
#pragma once

enum { FAKE_IMAGES_MAX = 16 };

typedef struct fake_driver_report {
    int is_fat_binary, n_images,
        images[FAKE_IMAGES_MAX]; /* architectures in the module that was loaded            */
    int chosen; /* the one that a driver would take for this device, 0: none */
    unsigned stream_flags; /* of all streams, or-ed */
    int n_launches;
    unsigned blocks, threads; /* of the last launch */
    unsigned least_threads; /* of all launches; 0: none */
    const char *function;
} fake_driver_report;
